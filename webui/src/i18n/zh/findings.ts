import type { findings as en } from '../en/findings'

export const findings: typeof en = {
  client_bound: {
    title: '客户端是瓶颈',
    cause: (e) =>
      `客户端自身发送滞后（P99 比计划晚 ${e('pacing_p99_ms')}，一个核占用 ${e('cpu_share')}），因此延迟不属于服务端。`,
    remedy: '增加客户端进程，让客户端独占一台机器，或降低速率。',
  },
  cache_inflated: {
    title: '前缀缓存使数值虚高',
    cause: (e) =>
      `${e('measured')} 的提示词元来自前缀缓存，而数据只重复 ${e('expected')}：这些提示之前已经发送过。`,
    remedy: '用新的种子再次运行（种子留空），或在两次相同的运行之间清空前缀缓存。',
  },
  cache_below_expected: {
    title: '前缀缓存的帮助小于数据所允许的',
    cause: (e) => `${e('measured')} 的提示词元来自前缀缓存，而数据重复 ${e('expected')}。`,
    remedy: '检查前缀缓存是否开启、能否容纳这些前缀，以及相同前缀的请求是否到达同一实例。',
  },
  queue_build_up: {
    title: '队列不断累积：到达多于完成',
    cause: (e) =>
      `每秒到达 ${e('offered_rate')} 个请求，完成 ${e('done_rate')} 个，只要此级持续，队列就会增长。其分位数只反映停止的那一刻。`,
    remedy: '将速率降到低于实际完成的速率，或增加实例或并发槽位。',
  },
  error_storm: {
    title: '有请求失败',
    cause: (e) => `${e('of')} 个请求中有 ${e('failed')} 个失败（${e('codes')}）。它们算作未达标，没有延迟。`,
    remedy: '查看各请求的错误，以及服务端当时的日志。',
  },
  endpoint_down: {
    title: '接口没有响应',
    cause: (e) => `${e('of')} 个请求全部失败：${e('codes')}。`,
    remedy: '启动该接口，或更正其地址。',
  },
  preemption: {
    title: '引擎重新计算了请求',
    cause: (e) => `KV 缓存容不下所有运行中的请求，引擎 ${e('preemptions')} 次撤下请求并重新开始。`,
    remedy: '为 KV 缓存提供更多内存，减少同时的请求，或缩短上下文。',
  },
  kv_full: {
    title: 'KV 缓存已满',
    cause: (e) =>
      `最多 ${e('waiting_peak')} 个请求在等待，而 KV 缓存占用达 ${e('kv_share_peak')}：限制并发的是内存而不是算力。`,
    remedy: '量化 KV 缓存，提供更多内存，共享前缀，或增加实例。',
  },
  early_stops: {
    title: '回答提前结束',
    cause: (e) =>
      `${e('of')} 个回答中有 ${e('short')} 个在要求的长度之前结束：平均 ${e('measured_mean')} 词元，而计划为 ${e('planned_mean')}。`,
    remedy: '若长度必须达到，请设置 extra_body {"ignore_eos": true}；否则按模型自身的长度规划。',
  },
  no_usage: {
    title: '服务端没有报告用量',
    cause: (e) => `${e('of')} 个回答中有 ${e('without')} 个没有词元数：其 TPOT 和词元速度缺失，而不是猜测。`,
    remedy: '请使用支持 stream_options.include_usage 的服务端。',
  },
  prompt_length_differs: {
    title: '提示长度与计划不同',
    cause: (e) =>
      `服务端平均计 ${e('counted_mean')} 词元，计划为 ${e('planned_mean')}：对话模板增加了长度，或分词器不同。`,
    remedy: '设置数据的 after_template，并将接口的分词器设为该模型的分词器。',
  },
  chunks_are_not_tokens: {
    title: '一块不等于一个词元',
    cause: (e) => `每块带 ${e('tokens_per_chunk')} 个词元。ICL 按块计，ITL 与 TPOT 按词元计。`,
    remedy: '无需处理；按块相除的工具会报告另一个 TPOT。',
  },
  ttft_parts: {
    title: '客户端与服务端看到的 TTFT',
    cause: (e) =>
      `客户端为 ${e('client_ms')}，服务端为 ${e('server_ms')}。相差 ${e('difference_ms')}，其中连接 ${e('connect_ms')}，网关 ${e('gateway_ms')}，其余 ${e('rest_ms')}。`,
    remedy: '若相差较大，请查看各部分：新建连接、网关队列，或其余中的网络与输入队列。',
  },
  sample_too_small: {
    title: '请求太少，无法认证',
    cause: (e) => `只有 ${e('n')} 个请求，而 ${e('quantile')} 至少需要 ${e('needed')} 个，无论结果多好。`,
    remedy: '增加每级的请求数，或让每级持续更久。',
  },
  not_steady: {
    title: '某级在稳定之前结束',
    cause: (e) => `${e('seconds')} 秒后仍未稳定：其分位数不能说明该速率。`,
    remedy: '让每级持续更久，或查找干扰服务端的原因。',
  },
  cold_start: {
    title: '最初的回答是冷启动',
    cause: (e) => `其 TTFT 为 ${e('first_ttft_ms')}，之后为 ${e('settled_ttft_ms')}。它们不在窗口内。`,
    remedy: '无需处理；更长的预热可节省时间。',
  },
  slo_unreachable: {
    title: '没有速率能达到目标',
    cause: (e) => `以每秒 ${e('lowest_rate')} 个请求、服务端几乎空闲时，也没有达到。`,
    remedy: '放宽上限，缩短提示或回答，或使用更快的硬件或更小的模型。',
  },
  search_wide: {
    title: '结果区间比要求的宽',
    cause: (e) => `在 ${e('low')} 与 ${e('high')} 请求/秒之间，有些级无法判定。`,
    remedy: '允许更多级、每级更多请求，或更长的级。',
  },
  search_undetermined: {
    title: '搜索没有得到结果',
    cause: (e) => `在 ${e('levels')} 级中，没有一对速率被认证为通过和未通过。`,
    remedy: '请看各级的原因：需要更多请求、更长的级，或其他速率。',
  },
  non_monotone: {
    title: '某速率未通过，而更高的速率通过了',
    cause: () => '重测两者仍不能确定。',
    remedy: '查找还有什么在使用机器，以及正在填充的缓存；结果取较低的区间。',
  },
  duplicate_prompts: {
    title: '提示有重复，如数据所声明',
    cause: (e) => `${e('requests')} 个中有 ${e('duplicates')} 个与其他相同：由前缀缓存代替模型回答。`,
    remedy: '请将这些数值视为重复流量的数值。',
  },
  items_without_answer: {
    title: '有问题没有得到回答',
    cause: (e) => `${e('task')} 的 ${e('items')} 项中有 ${e('errors')} 项没有回答，不计入任何数值。`,
    remedy: '查看样本的错误，排除原因后再次运行。',
  },
  chance_level: {
    title: '与猜测无异',
    cause: (e) => `${e('task')} 得分 ${e('score')}，而猜测可达 ${e('chance')}。`,
    remedy: '在归咎于模型之前，请检查样本、对话模板和 BOS 词元。',
  },
  nothing_right: {
    title: '没有一项正确',
    cause: (e) => `${e('task')} 的 ${e('n')} 项中没有一项正确。`,
    remedy: '请看几条回答：可能是模板、规则或词元上限有误。',
  },
  empty_answers: {
    title: '回答为空',
    cause: (e) => `${e('task')} 有 ${e('count')} 个回答为空。`,
    remedy: '对话模板或停止词可能使其立即结束。',
  },
  cut_answers: {
    title: '回答被截断',
    cause: (e) => `${e('task')} 有 ${e('count')} 个回答在 max_tokens 处结束。`,
    remedy: '提高该任务的 max_tokens，或要求更短的回答。',
  },
  judge_not_calibrated: {
    title: '评审未经校准',
    cause: (e) => `${e('task')} 的评审只与 ${e('labels')} 个人工标注比较过；可信之前需要 ${e('wanted')} 个。`,
    remedy: '请提供 calibration：包含 prompt、answer_a、answer_b 与人工 label 的行。',
  },
  judge_disagrees: {
    title: '评审与人的判断不一致',
    cause: (e) => `${e('task')} 的评审与人的 kappa 为 ${e('kappa')}，低于 ${e('least')}。`,
    remedy: '更换评审，或在 criteria 中写明人所看重的标准。',
  },
  judge_unreadable: {
    title: '评审的裁决不明确',
    cause: (e) => `${e('task')} 的评审有 ${e('share')} 的回复不含唯一的裁决。`,
    remedy: '提高 verdict_tokens，或选用能遵守格式的评审。',
  },
  judge_follows_length: {
    title: '评审受回答长度影响',
    cause: (e) => `${e('task')} 的评审随回答长度而定（对数几率 ${e('effect')}）。`,
    remedy: '请看 win_rate_length_controlled；在 criteria 中写明回答应有多长。',
  },
}
