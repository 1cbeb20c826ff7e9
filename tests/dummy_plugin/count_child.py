"""The child of the job kind dummy.count."""

from engines.protocol import Channel, read_spec

channel = Channel()
spec = read_spec()["spec"]
for number in range(1, spec["to"] + 1):
    channel.progress(number / spec["to"], f"{number} of {spec['to']}")
    channel.metric("count", number, step=number)
    channel.log(f"counted {number}")
channel.report({"counted": spec["to"]}, verdict="ok" if spec["to"] < 100 else "failed")
