from tursiops.supervisor import logs
from tursiops.supervisor.logs import ProcessLog


def test_rotation_keeps_every_line_of_the_newest_files(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LIMIT", 1000)
    log = ProcessLog(tmp_path, "web")
    for number in range(100):
        log.write(f"line {number:04d} {'x' * 20}\n".encode())
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web.log", "web.log.1", "web.log.2"]
    newest = [(tmp_path / name).read_text() for name in ("web.log.2", "web.log.1", "web.log")]
    numbers = [int(line.split()[1]) for line in "".join(newest).splitlines()]
    assert numbers == list(range(numbers[0], 100))


def test_lines_are_whole_however_the_bytes_arrive(tmp_path, capsys):
    log = ProcessLog(tmp_path, "web")
    log.follow = True
    text = "größer\nnext\n".encode()
    for byte in text:
        log.write(bytes([byte]))
    assert list(log.tail) == ["größer", "next"]
    assert capsys.readouterr().out.splitlines() == ["web        größer", "web        next"]


def test_a_full_disk_costs_the_words_and_not_the_process(tmp_path, monkeypatch):
    """A writer that failed here would stop reading the pipe, and its process would stand still for ever."""
    monkeypatch.setattr(logs, "LIMIT", 100)
    (tmp_path / "web.log").symlink_to("/dev/full")
    log = ProcessLog(tmp_path, "web")
    for number in range(20):
        log.write(f"line {number}\n".encode())
    assert list(log.tail)[-1] == "line 19"
    (tmp_path / "web.log").unlink()  # there is room again
    log._file.close()
    log.write(b"back\n")
    assert (tmp_path / "web.log").read_text() == "back\n"


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path):
    log = ProcessLog(tmp_path, "web")
    for _ in range(300):
        log.write(b"x" * 10_000)
    assert len(log._rest) <= logs.LIMIT // 64
