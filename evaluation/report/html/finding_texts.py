"""Chinese of findings' sentences by code; values in braces come from the evidence."""

CHINESE: dict[str, dict[str, str]] = {
    "client_bound": {
        "cause": "客户端自身滞后，时延并非服务端的时延：该级别无效。",
        "remedy": "增加客户端进程、让客户端独占一台机器，或降低速率。",
    },
    "cache_inflated": {
        "cause": "前缀缓存命中（{measured}）多于数据集自身的重复（{expected}）：这些提示此前已发送过。",
        "remedy": "使用新的随机种子（不要写 seed），或在两次相同运行之间清空服务端的前缀缓存。",
    },
    "cache_below_expected": {
        "cause": "前缀缓存命中（{measured}）少于数据集自身的重复（{expected}）。",
        "remedy": "请检查前缀缓存已开启、缓存容得下这些前缀，且同一前缀的请求到达同一实例。",
    },
    "queue_build_up": {
        "cause": "到达多于处理，队列在整个级别内持续增长：其分位数只反映停止的那一刻，不反映该速率。",
        "remedy": "发送速率低于实际处理速率，或增加实例、并发槽位。",
    },
    "endpoint_down": {"cause": "所有请求都失败：端点没有响应。", "remedy": "启动端点，或更正其 url。"},
    "error_storm": {
        "cause": "{of} 个请求中 {failed} 个失败。失败计为未达标，且没有时延。",
        "remedy": "查看 requests.jsonl 中的错误与服务端同一时间的日志。",
    },
    "preemption": {
        "cause": "KV 缓存容不下所有在途请求，引擎抢占并重新计算了一部分（{preemptions} 次）。",
        "remedy": "增大 KV 缓存、减少同时运行的请求数，或缩短上下文。",
    },
    "kv_full": {
        "cause": "KV 缓存已满而仍有请求等待：限制并发的是显存，不是算力。",
        "remedy": "量化 KV 缓存、增加其显存、共享前缀，或增加实例。",
    },
    "early_stops": {
        "cause": "部分回答未达到要求的长度就结束：实际生成少于计划。",
        "remedy": '若长度必须固定，请设置 extra_body {{"ignore_eos": true}}；否则按模型自身的长度规划。',
    },
    "no_usage": {
        "cause": "服务端未返回 usage，token 数未知：TPOT 与每秒 token 数缺失，不作猜测。",
        "remedy": "使用支持 stream_options.include_usage 的服务端。",
    },
    "prompt_length_differs": {
        "cause": "服务端统计的提示长度（{counted_mean}）与计划（{planned_mean}）不同："
        "对话模板会增加长度，或分词器不同。",
        "remedy": "设置 dataset.after_template，并将 endpoint.tokenizer 设为模型自己的分词器。",
    },
    "chunks_are_not_tokens": {
        "cause": "一个数据块不止一个 token（平均 {tokens_per_chunk}）："
        "块间隔为 ICL；ITL 与 TPOT 按 usage 的 token 计。",
        "remedy": "无需处理；按数据块相除的工具会得到不同的 TPOT。",
    },
    "ttft_parts": {
        "cause": "首 token 时延：客户端 {client_ms} ms，服务端 {server_ms} ms，相差 {difference_ms} ms。",
        "remedy": "差值较大时请看各部分：每次新建连接、网关排队，或网络与服务端输入队列。",
    },
    "sample_too_small": {
        "cause": "请求数（{n}）少于该分位所需（{needed}）：无论结果多好都无法认证。",
        "remedy": "增大 min_requests，或延长级别（steady.max_s）。",
    },
    "not_steady": {
        "cause": "级别在达到稳态之前结束：其分位数不能代表该速率。",
        "remedy": "延长级别（steady.max_s），或查找干扰服务端的原因。",
    },
    "cold_start": {
        "cause": "级别最初的回答慢于稳定后（{first_ttft_ms} ms 对 {settled_ttft_ms} ms）：缓存、计算图或连接尚未预热；"
        "它们不在窗口内。",
        "remedy": "无需处理；更长的 warm_up_s 可节省搜索时间。",
    },
    "items_without_answer": {
        "cause": "{task}：{items} 条中 {errors} 条没有答案，不计入任何数值。",
        "remedy": "查看样本中的错误并修复，再用 --resume 继续。",
    },
    "chance_level": {
        "cause": "{task} 得分 {score}，随机猜测的 {chance} 落在其区间内。",
        "remedy": "在归咎模型之前，请检查样本、对话模板与 BOS 策略。",
    },
    "nothing_right": {
        "cause": "{task} 的 {n} 条无一正确。",
        "remedy": "请读几条回答：可能是模板、规则或 token 上限的问题。",
    },
    "empty_answers": {
        "cause": "{task} 有 {count} 条回答为空。",
        "remedy": "可能是对话模板或停止词使回答立即结束。",
    },
    "cut_answers": {
        "cause": "{task} 有 {count} 条回答在 max_tokens 处被截断。",
        "remedy": "提高该任务的 max_tokens，或要求更短的回答。",
    },
    "judge_not_calibrated": {
        "cause": "{task} 的评审只与 {labels} 个人工标注比较过；可信之前需要 {wanted} 个。",
        "remedy": "请提供 calibration：包含 prompt、answer_a、answer_b 与人工 label 的行。",
    },
    "judge_disagrees": {
        "cause": "{task} 的评审与人的 kappa 为 {kappa}，低于 {least}。",
        "remedy": "更换评审，或在 criteria 中写明人所看重的标准。",
    },
    "judge_unreadable": {
        "cause": "{task} 的评审有 {share} 的回复不含唯一的裁决。",
        "remedy": "提高 verdict_tokens，或选用能遵守格式的评审。",
    },
    "judge_follows_length": {
        "cause": "{task} 的评审随回答长度而定（对数几率 {effect}）。",
        "remedy": "请看 win_rate_length_controlled；在 criteria 中写明回答应有多长。",
    },
    "duplicate_prompts": {
        "cause": "数据集中有相同的提示（{requests} 条中 {duplicates} 条），且已声明如此："
        "这些请求由前缀缓存代替模型作答。",
        "remedy": "请把数据理解为自我重复的流量。",
    },
    "slo_unreachable": {
        "cause": "独占服务端的请求也未达标：没有足够低的速率。",
        "remedy": "放宽目标、缩短提示或回答，或使用更快的硬件、更小的模型。",
    },
    "search_wide": {
        "cause": "区间（{low} – {high}）宽于容差：两端之间的级别未能判定。",
        "remedy": "增加级别数或每级请求数（max_levels、min_requests、steady.max_s）。",
    },
    "client_ceiling": {
        "cause": "自 {rate} 请求/秒起客户端自身滞后：用它无法测量更高的速率。",
        "remedy": "增加客户端进程，或让客户端独占一台机器。",
    },
    "search_undetermined": {
        "cause": "没有一对速率被分别认证为通过与未通过。",
        "remedy": "请看各级别的原因：需要更多请求、更长的级别或其他速率。",
    },
    "non_monotone": {
        "cause": "某个速率未通过而更高的速率通过，重复两者也未能澄清。",
        "remedy": "请查找同时占用机器的程序与逐渐填满的缓存；区间取较低者。",
    },
    "not_comparable": {
        "cause": "{metric}：不可比（{reason}）。",
        "remedy": "请用 tursiops-eval run 测量，或仅与同一工具的结果比较。",
    },
}
