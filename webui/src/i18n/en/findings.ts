import type { FindingWords } from '@/pages/evaluations/result/findingText'

/** Words for the codes of evaluation/runner and evaluation/quality; a code without any is shown as the run said it. */
export const findings: Record<string, FindingWords> = {
  client_bound: {
    title: 'The client was the bottleneck',
    cause: (e) =>
      `The client itself was late (P99 ${e('pacing_p99_ms')} after the plan, ${e('cpu_share')} of a core busy), so the latencies are not the server's.`,
    remedy: 'Use more client processes, a machine of its own for the client, or a lower rate.',
  },
  cache_inflated: {
    title: 'The prefix cache inflates the figures',
    cause: (e) =>
      `${e('measured')} of the prompt tokens came from the prefix cache, and the data repeat only ${e('expected')}: these prompts were sent before.`,
    remedy:
      'Run again with a fresh seed (leave the seed empty), or empty the prefix cache between two equal runs.',
  },
  cache_below_expected: {
    title: 'The prefix cache helped less than the data allow',
    cause: (e) =>
      `${e('measured')} of the prompt tokens came from the prefix cache; the data repeat ${e('expected')}.`,
    remedy:
      'Check that prefix caching is on, that the cache holds the prefixes, and that requests with one prefix reach one instance.',
  },
  queue_build_up: {
    title: 'The queue builds up: more comes than is served',
    cause: (e) =>
      `${e('offered_rate')} requests/s came and ${e('done_rate')} were done, so the queue grows as long as the level lasts. Its percentiles are those of the moment it was stopped.`,
    remedy: 'Offer less than the rate that was served, or add instances or slots.',
  },
  error_storm: {
    title: 'Requests failed',
    cause: (e) =>
      `${e('failed')} of ${e('of')} requests failed (${e('codes')}). They are misses and have no latency.`,
    remedy: 'See the errors of the requests, and the log of the server at that time.',
  },
  endpoint_down: {
    title: 'The endpoint does not answer',
    cause: (e) => `All ${e('of')} requests failed: ${e('codes')}.`,
    remedy: 'Start the endpoint, or correct its address.',
  },
  preemption: {
    title: 'The engine computed requests again',
    cause: (e) =>
      `${e('preemptions')} times it took a request off and began it again, as its KV cache had no room for all that ran.`,
    remedy: 'Give the KV cache more memory, allow fewer requests at once, or shorten the context.',
  },
  kv_full: {
    title: 'The KV cache was full',
    cause: (e) =>
      `It was ${e('kv_share_peak')} full while up to ${e('waiting_peak')} requests waited: memory bounds how many run at once, not compute.`,
    remedy: 'Quantize the KV cache, give it more memory, share prefixes, or add instances.',
  },
  early_stops: {
    title: 'Answers ended early',
    cause: (e) =>
      `${e('short')} of ${e('of')} answers ended before the length that was asked for: ${e('measured_mean')} tokens on average instead of ${e('planned_mean')}.`,
    remedy:
      'Where lengths must hold, set extra_body {"ignore_eos": true}; else plan by the lengths of the model itself.',
  },
  no_usage: {
    title: 'The server tells no usage',
    cause: (e) =>
      `${e('without')} of ${e('of')} answers came without token counts: TPOT and tokens per second are missing there, not guessed.`,
    remedy: 'Use a server that answers stream_options.include_usage.',
  },
  prompt_length_differs: {
    title: 'Prompts have another length than planned',
    cause: (e) =>
      `The server counts ${e('counted_mean')} tokens on average, ${e('planned_mean')} were planned: the chat template adds to them, or its tokenizer is another.`,
    remedy: 'Set after_template of the data, and the tokenizer of the endpoint to the one of the model.',
  },
  chunks_are_not_tokens: {
    title: 'A chunk is not a token',
    cause: (e) =>
      `A chunk carries ${e('tokens_per_chunk')} tokens. ICL is per chunk; ITL and TPOT are per token.`,
    remedy: 'None is needed; a tool that divides by chunks reports another TPOT.',
  },
  ttft_parts: {
    title: 'TTFT as the client and the server see it',
    cause: (e) =>
      `The client sees ${e('client_ms')}, the server ${e('server_ms')}. Of the ${e('difference_ms')} between: connection ${e('connect_ms')}, gateway ${e('gateway_ms')}, rest ${e('rest_ms')}.`,
    remedy:
      'Where the difference is large, look at its parts: new connections, the queue of the gateway, or network and input queue in the rest.',
  },
  sample_too_small: {
    title: 'Too few requests to certify anything',
    cause: (e) =>
      `${e('n')} requests, and ${e('quantile')} needs at least ${e('needed')}, however good they were.`,
    remedy: 'Raise the requests per level, or let levels last longer.',
  },
  not_steady: {
    title: 'A level ended before it was steady',
    cause: (e) => `After ${e('seconds')} s it had not come to rest: its percentiles say nothing of the rate.`,
    remedy: 'Let levels last longer, or look for what disturbs the server.',
  },
  cold_start: {
    title: 'The first answers were cold',
    cause: (e) =>
      `They took ${e('first_ttft_ms')} to the first token, later ones ${e('settled_ttft_ms')}. They are not in the window.`,
    remedy: 'None is needed; a longer warm-up saves the time.',
  },
  slo_unreachable: {
    title: 'No rate meets the objectives',
    cause: (e) => `Requests at ${e('lowest_rate')}/s, alone in the server, missed them, too.`,
    remedy: 'Relax the limit, shorten prompts or answers, or use faster hardware or a smaller model.',
  },
  search_wide: {
    title: 'The answer is wider than asked',
    cause: (e) => `Between ${e('low')} and ${e('high')} requests/s some levels could not be decided.`,
    remedy: 'Allow more levels, more requests in a level, or longer levels.',
  },
  search_undetermined: {
    title: 'The search found no answer',
    cause: (e) => `No pair of rates was certified to pass and to fail in ${e('levels')} levels.`,
    remedy: 'See the reasons of the levels: more requests, longer levels, or other rates are needed.',
  },
  non_monotone: {
    title: 'A rate failed although a greater one passed',
    cause: () => 'Repeating both did not settle it.',
    remedy: 'Look for what else used the machine, and for caches that fill; the interval is the lower one.',
  },
  duplicate_prompts: {
    title: 'Prompts repeat, as the data declare',
    cause: (e) =>
      `${e('duplicates')} of ${e('requests')} are identical to others: the prefix cache answers for the model.`,
    remedy: 'Read the figures as those of traffic that repeats itself.',
  },
  items_without_answer: {
    title: 'Questions without an answer',
    cause: (e) => `${e('errors')} of ${e('items')} items of ${e('task')} have none; no figure holds them.`,
    remedy: 'Read the errors of the samples, mend the cause, and run again.',
  },
  chance_level: {
    title: 'No better than guessing',
    cause: (e) => `${e('task')} scores ${e('score')}, and guessing reaches ${e('chance')}.`,
    remedy: 'Look at the samples, the chat template and the BOS token before the model is blamed.',
  },
  nothing_right: {
    title: 'Nothing is right',
    cause: (e) => `Not one of ${e('n')} items of ${e('task')}.`,
    remedy: 'Read some answers: a template, a rule or a limit of tokens may be at fault.',
  },
  empty_answers: {
    title: 'Empty answers',
    cause: (e) => `${e('count')} answers of ${e('task')} are empty.`,
    remedy: 'The chat template or a stop text may end them at once.',
  },
  cut_answers: {
    title: 'Answers were cut off',
    cause: (e) => `${e('count')} answers of ${e('task')} ended at max_tokens.`,
    remedy: 'Raise max_tokens of the task, or ask for shorter answers.',
  },
  judge_not_calibrated: {
    title: 'The judge is not calibrated',
    cause: (e) =>
      `The judge of ${e('task')} was compared with ${e('labels')} human labels; ${e('wanted')} are wanted to trust it.`,
    remedy: "Give calibration: rows with prompt, answer_a, answer_b and a person's label.",
  },
  judge_disagrees: {
    title: 'The judge disagrees with people',
    cause: (e) => `The kappa with people of the judge of ${e('task')} is ${e('kappa')}, below ${e('least')}.`,
    remedy: 'Take another judge, or say in criteria what people looked at.',
  },
  judge_unreadable: {
    title: 'The judge does not give clear verdicts',
    cause: (e) => `${e('share')} of the replies of the judge of ${e('task')} hold no single verdict.`,
    remedy: 'Raise verdict_tokens, or take a judge that follows the form.',
  },
  judge_follows_length: {
    title: 'The judge follows the length of answers',
    cause: (e) => `Verdicts of the judge of ${e('task')} follow the length (log-odds ${e('effect')}).`,
    remedy: 'Read win_rate_length_controlled; say in criteria how long an answer should be.',
  },
}
