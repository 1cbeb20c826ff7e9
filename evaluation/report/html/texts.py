"""What a page says, in English and Chinese; style shows one of them. Findings' sentences are in findings.py."""

from __future__ import annotations

from evaluation.report.html.markup import Child, Markup, escape, h

Text = tuple[str, str]

METRICS: dict[str, tuple[str, Text]] = {
    "ttft": ("TTFT", ("time to first token, from sending", "首 token 时延，从实际发送算起")),
    "ttft_intended": ("TTFT*", ("time to first token, from the intended start", "首 token 时延，从计划发送时刻算起")),
    "e2el": ("E2EL", ("until the last token, from sending", "端到端时延，从实际发送算起")),
    "e2el_intended": ("E2EL*", ("until the last token, from the intended start", "端到端时延，从计划发送时刻算起")),
    "tpot": ("TPOT", ("time per output token after the first", "首 token 之后每个 token 的时间")),
    "itl": ("ITL", ("gap between tokens", "token 间隔")),
    "icl": ("ICL", ("gap between chunks", "数据块间隔")),
    "attainment": ("Attainment", ("share that met every objective", "满足全部目标的比例")),
    "succeeded": ("Succeeded", ("share of requests without a failure", "未失败请求的比例")),
    "done": ("Done per second", ("completions", "每秒完成数")),
    "output_tokens_per_s": ("Output tokens/s", ("of all requests together", "所有请求合计")),
    "capacity": ("Capacity", ("certified requests per second", "认证的每秒请求数")),
    "send_lag": ("Send lag", ("sent later than planned: the client’s part", "晚于计划发送的时间（客户端所致）")),
    "prompt_tokens": ("Prompt tokens", ("by the server’s usage", "由服务端 usage 给出")),
    "output_tokens": ("Output tokens", ("by the server’s usage", "由服务端 usage 给出")),
    "tokens_per_chunk": ("Tokens per chunk", ("acceptance length as a client sees it", "客户端所见的接受长度")),
}

TEXTS: dict[str, Text] = {
    "kind.load": ("Load test", "负载测试"),
    "kind.search": ("Capacity search", "容量搜索"),
    "kind.quality": ("Quality evaluation", "质量评测"),
    "kind.plan": ("Capacity plan", "容量规划"),
    "kind.compare": ("Comparison", "结果对比"),
    "theme.auto": ("Auto", "自动"),
    "theme.light": ("Light", "浅色"),
    "theme.dark": ("Dark", "深色"),
    "alert.invalid": ("Do not use these figures", "请勿使用这些数据"),
    "alert.levels": ("Do not use the figures of these levels", "请勿使用以下级别的数据"),
    "alert.warning": ("Read the figures with this in mind", "请结合以下情况理解数据"),
    "alert.incomplete": (
        "The run did not end: what follows is what it had measured until then.",
        "运行未结束：以下仅为中断前已测得的内容。",
    ),
    "alert.running": ("The run is still measuring.", "运行仍在进行。"),
    "alert.none": (
        "The run proved itself: no check casts doubt on its figures.",
        "运行自检通过：没有检查对数据提出疑问。",
    ),
    "no_levels": ("No level has been measured.", "尚无已测级别。"),
    "capacity.certified": (
        "Carries {low} requests/s, and no longer {high}.",
        "可承载 {low} 请求/秒；到 {high} 时已不满足目标。",
    ),
    "capacity.certified.next": (
        "Both ends are certified with {share} confidence, over {levels} levels.",
        "两端均以 {share} 置信度认证，共 {levels} 个级别。",
    ),
    "capacity.open_above": ("Carries at least {low} requests/s.", "至少可承载 {low} 请求/秒。"),
    "capacity.open_above.next": (
        "No rate that was tried failed ({levels} levels): set a higher bound to find where it ends.",
        "所试速率均满足目标（{levels} 个级别）：请提高上限以找到边界。",
    ),
    "capacity.unreachable": ("No rate meets the objectives.", "任何速率都不满足目标。"),
    "capacity.unreachable.next": (
        "Even the lowest rate of {levels} levels failed: look at the unloaded latency first.",
        "{levels} 个级别中最低速率也未通过：请先查看空载时延。",
    ),
    "capacity.undetermined": ("No rate could be certified.", "未能认证任何速率。"),
    "capacity.undetermined.next": (
        "The samples of {levels} levels are too small, or none came to rest: raise the requests per level.",
        "{levels} 个级别的样本过小或未达稳态：请增加每级请求数。",
    ),
    "held.rate": ("Measured at {load} requests/s.", "以 {load} 请求/秒测量。"),
    "held.rates": ("Measured at {levels} rates.", "以 {levels} 个速率测量。"),
    "held.closed": (
        "Closed loop: throughput at a given concurrency, not capacity.",
        "闭环：给定并发下的吞吐，不是容量。",
    ),
    "objective.bound": (
        "{k} misses of {n} requests ({failed} failed): between {lower} and {upper}, allowed {allowed}",
        "{n} 个请求中 {k} 个未达标（失败 {failed}）：介于 {lower} 与 {upper} 之间，允许 {allowed}",
    ),
    "beside": ("{n} requests, {failed} failed", "{n} 个请求，{failed} 个失败"),
    "at_rate": ("{load} requests/s", "{load} 请求/秒"),
    "at_concurrency": ("{load} at once", "并发 {load}"),
    "per_s": ("req/s", "请求/秒"),
    "tiles.best": ("Best point: {load}", "最佳点：{load}"),
    "tiles.shown": ("Shown level: {load}", "所示级别：{load}"),
    "tile.done": ("Done", "完成"),
    "tile.goodput": ("Goodput", "有效吞吐"),
    "tile.attainment": ("Attainment", "达标率"),
    "tile.tokens": ("Output tokens", "输出 token"),
    "tokens_per_s": ("tokens/s", "token/秒"),
    "sweep.title": ("Latency and throughput over load", "时延与吞吐随负载变化"),
    "sweep.note": (
        "Point at a level, or reach it with the Tab key, to read it. The knee is where latency begins to grow faster "
        "than the load. The vertical bars are 95 % order-statistic intervals.",
        "将指针移到某个级别（或按 Tab 键）即可读数。拐点是时延开始快于负载增长之处；竖线为 95 % 次序统计量区间。",
    ),
    "flow.title": ("Throughput", "吞吐"),
    "mark.pass": ("steady, objectives met", "稳态且达标"),
    "mark.fail": ("steady, an objective missed", "稳态但未达标"),
    "mark.overloaded": ("overloaded", "过载"),
    "mark.undetermined": ("undetermined", "未定"),
    "mark.invalid": ("invalid", "无效"),
    "mark.certified": ("certified interval", "认证区间"),
    "mark.slo": ("objective", "目标线"),
    "mark.knee": ("knee", "拐点"),
    "mark.best": ("best point", "最佳点"),
    "certified": ("certified", "认证"),
    "knee": ("knee {rate}", "拐点 {rate}"),
    "legend.bounds": ("95 % interval of {q}", "{q} 的 95 % 区间"),
    "axis.rate": ("offered requests/s", "发送请求/秒"),
    "axis.concurrency": ("requests at once", "并发请求数"),
    "axis.flow": ("requests/s", "请求/秒"),
    "axis.requests": ("requests", "请求数"),
    "axis.seconds": ("s", "秒"),
    "axis.ttft": ("TTFT", "TTFT"),
    "axis.e2el": ("E2EL", "E2EL"),
    "axis.tpot": ("TPOT", "TPOT"),
    "axis.itl": ("ITL", "ITL"),
    "readout.load": ("Load", "负载"),
    "readout.verdict": ("Level", "级别"),
    "readout.counted": ("Requests / failed", "请求 / 失败"),
    "levels.title": ("Levels", "级别"),
    "levels.note": (
        "An objective passes when the upper bound of its misses is within what it allows; failed requests are misses.",
        "当未达标比例的上界不超过允许值时目标通过；失败请求计为未达标。",
    ),
    "level.rate": ("Rate", "速率"),
    "level.rate.hint": ("Requests per second of the schedule", "发送计划的每秒请求数"),
    "level.concurrency": ("Concurrency", "并发"),
    "level.concurrency.hint": ("Requests at once, in closed loop", "闭环中的同时请求数"),
    "level.verdict": ("Level", "级别状态"),
    "level.verdict.hint": ("Whether the level came to rest, by its checks", "该级别是否经检查达到稳态"),
    "level.offered": ("Offered", "发送"),
    "level.offered.hint": ("Arrivals per second in the window", "窗口内每秒到达数"),
    "level.done": ("Done", "完成"),
    "level.done.hint": ("Completions per second in the same window", "同一窗口内每秒完成数"),
    "level.goodput": ("Goodput", "有效吞吐"),
    "level.goodput.hint": ("Requests per second that met every objective", "每秒满足全部目标的请求数"),
    "level.attainment": ("Attainment", "达标率"),
    "level.attainment.hint": ("Share of the offered that met every objective", "满足全部目标的请求占发送的比例"),
    "level.requests": ("Requests", "请求"),
    "level.requests.hint": ("Whose intended start lies in the window", "计划发送时刻在窗口内的请求"),
    "level.failed": ("Failed", "失败"),
    "level.failed.hint": ("Errors, time-outs, cut and cancelled", "错误、超时、中断与取消"),
    "window": ("{seconds} s window, {cut} s before it left out", "窗口 {seconds} 秒，之前舍去 {cut} 秒"),
    "percentiles.title": ("Percentiles", "分位数"),
    "percentiles.note": (
        "Definitions version {version}. Small: 95 % intervals. Failed requests have no latency; they stand beside "
        "every figure and are misses of every objective.",
        "指标定义版本 {version}。小字为 95 % 区间。失败请求没有时延，其数量列在每项旁，并计为未达标。",
    ),
    "percentiles.none": ("Nothing was measured at this level.", "该级别没有测得任何值。"),
    "col.metric": ("Metric", "指标"),
    "col.n": ("n", "样本数"),
    "col.failed": ("Failed", "失败"),
    "col.mean": ("Mean", "均值"),
    "col.max": ("Greatest", "最大"),
    "course.title": ("Course of the shown level", "所示级别的过程"),
    "course.flow": ("Offered and done", "发送与完成"),
    "course.in_flight": ("In flight", "在途请求"),
    "course.ttft": ("TTFT", "TTFT"),
    "findings.title": ("Findings", "发现"),
    "findings.none": ("Nothing suspicious was found.", "没有发现可疑之处。"),
    "finding.cause": ("Cause", "原因"),
    "finding.evidence": ("Evidence", "证据"),
    "finding.remedy": ("Remedy", "处理办法"),
    "finding.levels": ("of {count} levels", "{count} 个级别"),
    "finding.at": ("at {load}", "于 {load}"),
    "trust.title": ("What the run checked of itself", "运行自检"),
    "trust.pacing": ("Pacing lag P50 / P99", "发送滞后 P50 / P99"),
    "trust.loop": ("Event-loop lag P99", "事件循环滞后 P99"),
    "trust.cpu": ("Busiest client process", "最忙的客户端进程"),
    "trust.null": ("Null server reached", "空服务器速率"),
    "trust.prefix": ("Prefix hits expected / measured", "前缀命中 预期 / 实测"),
    "trust.client": ("Client", "客户端"),
    "data.title": ("Data", "数据集"),
    "data.sha": ("SHA-256", "SHA-256"),
    "data.requests": ("Items", "条目"),
    "data.duplicates": ("Duplicate prompts", "重复提示"),
    "data.expected": ("Prefix hits expected", "预期前缀命中"),
    "data.prompt": ("Prompt tokens, mean / P99", "提示 token，均值 / P99"),
    "data.output": ("Output tokens, mean / P99", "输出 token，均值 / P99"),
    "environment.title": ("Environment", "环境"),
    "run.id": ("Run", "运行"),
    "run.model": ("Model", "模型"),
    "run.url": ("Endpoint", "端点"),
    "run.started": ("Started", "开始"),
    "run.ended": ("Ended", "结束"),
    "run.seed": ("Seed", "随机种子"),
    "run.definitions": ("Definitions", "指标定义版本"),
    "run.scenario": ("Scenario", "场景"),
    "spec.title": ("What the run was told", "运行参数"),
    "score.title": ("Declared score", "场景得分"),
    "score.note": ("Beside the verdict, never instead of it.", "仅供参考，不替代结论。"),
    "quality.tasks": ("Tasks", "任务"),
    "quality.note": (
        "The bar is the 95 % interval, the tick on the line what guessing reaches. Items without an answer are in no "
        "figure and are counted.",
        "横条为 95 % 区间，刻度线为随机猜测水平。没有答案的条目不计入任何数值，单独计数。",
    ),
    "quality.gates": ("Gates", "门禁"),
    "quality.task": ("Task", "任务"),
    "quality.figure": ("Figure", "指标"),
    "quality.value": ("Value", "值"),
    "quality.interval": ("95 % interval", "95 % 区间"),
    "quality.items": ("Measured / items", "已测 / 条目"),
    "quality.errors": ("Errors", "错误"),
    "quality.gate": ("Gate", "门禁"),
    "quality.rule": ("Rule", "规则"),
    "quality.decision": ("Decision", "结论"),
    "quality.baseline": ("Baseline", "基线"),
    "quality.flips": ("Right→wrong / wrong→right", "对→错 / 错→对"),
    "quality.p": ("p (Holm)", "p（Holm）"),
    "quality.reason": ("Reason", "理由"),
    "compare.runs": ("Runs", "运行"),
    "compare.run": ("Run", "运行"),
    "compare.base": ("base", "基准"),
    "compare.error": ("{run}: not comparable", "{run}：不可比"),
    "compare.warning": ("{run}: read with this in mind", "{run}：请结合以下情况理解"),
    "compare.info": ("{run}: what to know", "{run}：须知"),
    "compare.other": ("other", "对象"),
    "compare.repeats": ("Repeats", "重复次数"),
    "compare.at": ("At load {load}", "负载 {load}"),
    "compare.title": ("{run} against {base}", "{run} 对比 {base}"),
    "compare.figure": ("Figure", "指标"),
    "compare.change": ("Change", "变化"),
    "compare.interval": ("95 % interval", "95 % 区间"),
    "compare.p": ("p, Holm", "p（Holm）"),
    "compare.verdict": ("Verdict", "结论"),
    "compare.n": ("n", "样本数"),
    "compare.chart": ("Change, with interval", "变化及区间"),
    "compare.note": (
        "Better or worse needs both: significance after Holm at 5 %, and a change beyond {threshold}. The shaded band "
        "is what does not matter in practice.",
        "判为更好或更差须同时满足：Holm 校正后在 5 % 水平显著，且变化超过 {threshold}。阴影带为无实际意义的范围。",
    ),
    "footer": (
        "Made by Tursiops. This file holds everything it shows and asks nothing of any network.",
        "由 Tursiops 生成。本文件自包含，不访问任何网络。",
    ),
}

WORDS: dict[str, dict[str, Text]] = {
    "verdict": {
        "pass": ("pass", "通过"),
        "fail": ("fail", "未通过"),
        "undetermined": ("undetermined", "未定"),
        "invalid": ("invalid", "无效"),
        "steady": ("steady", "稳态"),
        "overloaded": ("overloaded", "过载"),
        "complete": ("complete", "完整"),
        "incomplete": ("incomplete", "不完整"),
        "running": ("running", "运行中"),
        "error": ("invalid", "无效"),
        "warning": ("warning", "警告"),
        "info": ("note", "提示"),
        "better": ("better", "更好"),
        "worse": ("worse", "更差"),
        "same": ("no difference shown", "未见差异"),
        "not_comparable": ("not comparable", "不可比"),
    },
    "reason": {
        "in_flight_slope": ("requests in flight keep growing", "在途请求持续增长"),
        "ttft_slope": ("TTFT keeps growing", "TTFT 持续增长"),
        "balance": ("less is done than offered", "完成少于发送"),
        "little": ("Little’s law does not hold", "不符合利特尔法则"),
        "windows": ("three windows in a row differ", "连续三个窗口不一致"),
        "too_few": ("too few requests", "请求过少"),
        "too_short": ("the window is too short", "窗口过短"),
        "no_requests": ("no request ended well", "没有成功的请求"),
        "all_failed": ("every request failed", "所有请求都失败"),
        "data_ended": ("the data set ended too early", "数据集过早用完"),
        "client": ("the client could not keep up", "客户端跟不上"),
        "cancelled": ("cancelled", "已取消"),
        "pacing_lag": ("the client sent late", "客户端发送滞后"),
        "loop_lag": ("the client’s event loop lagged", "客户端事件循环滞后"),
        "cpu": ("the client’s CPU was full", "客户端 CPU 已满"),
        "file_descriptors": ("the client ran out of file descriptors", "客户端文件描述符耗尽"),
        "null_server": ("slower than against a null server", "对空服务器也达不到速率"),
    },
}


def both(text: Text, *, svg: bool = False) -> Markup:
    """The same in two languages; plain where they do not differ."""
    english, chinese = text
    if english == chinese:
        return escape(english)
    tag = "tspan" if svg else "span"
    return Markup(h(tag, english, class_="en", lang="en") + h(tag, chinese, class_="zh", lang="zh"))


def say(key: str, *, svg: bool = False, **values: Child) -> Markup:
    """A text with its values, which are escaped. Raises KeyError for a key that nobody wrote."""
    filled = {name: escape(value) for name, value in values.items()}
    english, chinese = (Markup(escape(text).format(**filled)) for text in TEXTS[key])
    return both((english, chinese), svg=svg)


def word(kind: str, code: str, *, svg: bool = False) -> Markup:
    """A state's or reason's word; a code that has none is shown as it is."""
    return both(WORDS[kind].get(code, (code.replace("_", " "),) * 2), svg=svg)


def quantile(value: float) -> str:
    """0.99 → P99."""
    return f"P{value * 100:g}"


def metric_name(name: str, *, long: bool = False) -> Markup:
    short, meaning = METRICS.get(name, (name, ("", "")))
    if not long or not meaning[0]:
        return h("span", short)
    return h("span", h("strong", short), " ", h("small", both(meaning), class_="muted"))
