"""Chinese of a comparison's notes, and the words of its reasons, by code."""

NOTES = {
    "one_run_each": "每侧只有一次运行：区间只含运行内部的波动，不含运行之间的差异。"
    "请交替重复至少五次，并给出存放重复运行的文件夹。",
    "kinds_differ": "两个结果的种类不同。请比较同一种类的结果。",
    "definitions_differ": "指标定义版本不同：同名而不同义。"
    "请用同一版本重新测量，或从较旧运行的 requests.jsonl 重新计算。",
    "invalid_run": "其中一次运行自检判定其数据无效。请按其报告中的处理办法重新测量。",
    "incomplete_run": "其中一次运行未完成，只比较已测部分。可用 tursiops-eval run --resume 继续。",
    "workload_unknown": "其中一个结果未以本工具的方式说明数据集与到达过程。"
    "请确认双方以同样方式发送了同样长度的提示与回答。",
    "datasets_differ": "两次运行发送了不同的负载：时延取决于提示与回答的长度。请使用同一 dataset。",
    "prompts_differ": "数据集规律相同但提示不同（种子或数量不同），因此请求不配对。",
    "loops_differ": "一次为开环，一次为闭环：闭环会随服务端变慢而减速。请都按速率加载。",
    "arrivals_differ": "到达过程不同：越突发等待越久。请使用同一到达过程。",
    "objectives_differ": "目标不同：不比较有效吞吐、达标率与容量。请使用同一 slo。",
    "endpoints_differ": "两次运行访问了不同的端点或模型。",
    "bodies_differ": "请求体不同（temperature、ignore_eos 等）：回答长度可能不同。请使用同一 extra_body。",
    "environments_differ": "运行环境不同。",
    "cache_suspicion": "同一种子访问了同一服务端，而服务端不报告前缀命中：后一次可能只因提示已缓存而更快。"
    "请不要固定种子，或在两次之间清空前缀缓存。",
    "cache_inflated": "后一次运行的提示来自前一次填充的前缀缓存：其数据好于服务端的真实水平。"
    "请不要固定种子，或在两次之间清空前缀缓存。",
    "no_common_load": "两次运行没有共同的负载：不同负载下的时延不能说明版本优劣。请用相同速率的 sweep 运行。",
    "tasks_missing": "有些任务只在其中一次运行中测过。请使用同一套件。",
}

REASONS = {
    "below_threshold": ("significant, but too small to matter", "显著，但小到无实际意义"),
    "not_significant": ("within chance", "在随机波动之内"),
    "too_few": ("too few values for this quantile", "样本不足以估计该分位"),
    "no_requests": ("the requests were not kept: no test is possible", "未保留请求记录：无法检验"),
    "not_measured": ("not measured by one of them", "其中一次未测得"),
    "overloaded": ("overloaded: latency grows with the run’s length", "过载：时延随运行时长增长"),
    "invalid_level": ("a level found itself invalid", "级别自检无效"),
    "objectives_differ": ("the objectives differ", "目标不同"),
    "open_above": ("no upper end was found", "未找到上限"),
    "refused": ("the runs are not comparable", "两次运行不可比"),
    "datasets_differ": ("other data", "数据不同"),
    "not_paired": ("only the primary figure is known item by item", "只有主指标可逐条比较"),
    "no_samples": ("the samples were not kept", "未保留样本"),
    "other_items": ("other items", "条目不同"),
    "no_baseline": ("the other run lacks it", "另一次运行缺少该项"),
}
