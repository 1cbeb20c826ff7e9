type Values = (name: string) => string

export const planner = {
  title: 'Capacity planner',
  lead: 'What it takes to serve a model to your traffic within its objectives. Ranges, each with where it comes from.',
  ask: 'What is to be served',
  version: 'Model version',
  traffic: 'Traffic',
  sources: { hand: 'By hand', usage: 'From usage' },
  ofDeployment: 'Deployment',
  usageHint:
    'Fitted from the usage records of the last 30 days: lengths, arrivals, and prefixes as far as the cache has shown them. Empty: all of the team.',
  byHandName: (rate: number) => `${rate} requests/s by hand`,
  fittedName: 'usage of the last 30 days',
  rate: 'Requests/s, mean',
  peak: 'Peak, times the mean',
  peakHint: 'The busiest minutes that are to be served well.',
  prefix: 'Shared prefix, tokens',
  hardware: 'Hardware',
  gpus: 'GPUs to choose from',
  gpusHint: 'Empty: all that are known.',
  maxGpus: 'GPUs at most',
  schemes: 'Weight formats',
  schemesHint: 'Empty: as the model is.',
  price: 'Price per hour',
  addPrice: 'Add a price',
  removePrice: 'Remove this price',
  submit: 'Plan',
  empty:
    'The answer appears here: memory, GPU choices with reasons, expected latencies, and whether to split prefill and decode.',
  kept: 'Plans made before',
  deleteEffect: 'The plan goes; its load test stays.',
  forModel: (model: string) => `Plan for ${model}`,
  demand: (peak: string, prompt: string, output: string) =>
    `At the peak ${peak} requests/s of ${prompt} prompt and ${output} generated tokens on average.`,
  floor: (inFlight: number, shared: string, unshared: string) =>
    `${inFlight} requests are in flight then. They need ${shared} of KV cache with shared prefixes, ${unshared} when the prefix cache evicts.`,
  choices: 'Choices, the preferred first',
  recommended: 'recommended',
  meets: { yes: 'meets', no: 'misses', unknown: 'may meet' },
  layout: (tp: number, pp: number, replicas: number) =>
    `TP ${tp}${pp > 1 ? ` · PP ${pp}` : ''} · ${replicas === 1 ? '1 instance' : `${replicas} instances`}`,
  cost: (price: string) => `${price} per hour`,
  bases: {
    calibrated: 'calibrated',
    transferred: 'transferred',
    bound_only: 'bound only',
    computed: 'computed',
  } as Record<string, string>,
  basisHints: {
    calibrated: 'Measured for this model on this device.',
    transferred: 'Measured on this device for another model.',
    bound_only:
      'From the data sheet: only what cannot be beaten is known. Calibrate on a live engine to make it a prediction.',
    computed: 'Arithmetic, such as bytes.',
  } as Record<string, string>,
  choice: (name: string) => `${name}: in full`,
  memory: (total: string, usable: string) => `${total} of ${usable} usable, on the fullest GPU`,
  parts: {
    weights: 'Weights',
    kv_floor: 'KV cache, needed',
    kv_cache: 'KV cache, beyond it',
    activations: 'Activations',
    graphs: 'CUDA graphs',
    communication: 'Communication',
    overhead: 'Engine and driver',
    reserve: 'Reserve',
  },
  free: 'Free',
  kvTokens: (count: string) => `The KV cache of one instance holds ${count} tokens.`,
  figure: 'Figure',
  expected: 'Expected',
  range: 'Range',
  onlyBounds: 'not known',
  basis: 'Rests on',
  source: 'Source',
  metrics: {
    requests_per_s: 'Requests/s that it carries',
    decode_step: 'One decode step',
    e2el_p50: 'E2EL P50',
    tpot_mean: 'TPOT, mean',
  } as Record<string, string>,
  reasons: 'Why',
  pdYes: (prefill: number, decode: number) =>
    `Split prefill and decode: ${prefill} prefill, ${decode} decode ${decode === 1 ? 'instance' : 'instances'}`,
  pdNo: 'Keep prefill and decode together',
  pdEffect: (apart: string, mixed: string, ttft: string, tpot: string, transfer: string) =>
    `${apart} requests/s apart, ${mixed} mixed; TTFT ${ttft}, TPOT ${tpot}; a hand-over takes ${transfer}.`,
  rejected: (count: number) => `Ruled out: ${count}`,
  confirmTitle: 'Put to the test',
  confirm: 'Confirm by load test',
  confirmLead: (peak: string) =>
    `A plan counts once a load test at its peak of ${peak} requests/s has confirmed it. Deploy the choice, then start the test.`,
  openRun: 'Open the load test',
  measured: 'Measured',
  residual: 'Off by',
  inside: 'In the range',
  isInside: 'inside',
  isOutside: 'outside',
  lines: {
    too_slow: (v) => `${v('tp')} × ${v('gpu')} (${v('scheme')}) misses the objectives even without load.`,
    too_many: (v) => `${v('gpus')} × ${v('gpu')} would be needed; ${v('max_gpus')} are allowed.`,
    kv_floor: (v) =>
      `${v('tp')} × ${v('gpu')}: the peak needs ${v('needed')} of KV cache per GPU; ${v('left')} are left.`,
    no_format: (v) => `${v('gpu')} does not compute in ${v('format')}.`,
    not_divisible: (v) => `TP ${v('tp')}: ${v('heads')} heads or ${v('layers')} layers cannot be divided so.`,
    too_small: (v) =>
      `${v('tp')} × ${v('gpu')} (${v('scheme')}) leaves room for ${v('tokens')} tokens; the longest request has ${v('longest')}. ${v('short_bytes')} per GPU are missing.`,
    replicas: (v) =>
      `Instances for the peak of ${v('peak')} requests/s, each serving ${v('per_instance')}: ${v('replicas')}.`,
    kv_held: (v) => `${v('room')} per GPU are left for the KV cache; the peak needs ${v('needed')}.`,
    kv_unshared_does_not_fit: (v) =>
      `When the prefix cache evicts, the peak needs ${v('unshared')}, more than the ${v('room')} there are: requests will then wait.`,
    objective_yes: (v) => `${v('quantile')} ${v('metric')} ≤ ${v('limit_ms')}: met.`,
    objective_no: (v) => `${v('quantile')} ${v('metric')} ≤ ${v('limit_ms')}: missed.`,
    objective_unknown: (v) =>
      `${v('quantile')} ${v('metric')} ≤ ${v('limit_ms')}: the range holds the limit.`,
    bound_only: (v) => `${v('gpu')} is not calibrated: only bounds are known. Calibrate on a live engine.`,
    nothing_fits: () => 'Nothing serves this traffic: see below why each choice was ruled out.',
    nothing_meets: () => 'No choice keeps the objectives at the peak, not even at the fast end of its range.',
    e2el_assumed: (v) => `There is no E2EL objective: requests in flight are counted with ${v('e2el_s')} s.`,
    no_objective: () => 'There is no objective: only memory and rates are planned.',
    no_prices: () => 'Without prices the order is by GPUs and their memory, not by cost.',
    confirm: () => 'A plan counts once its load test has confirmed it.',
    pd_tiny_output: (v) =>
      `Answers have ${v('output')} tokens on average: a decode pool would have little to do, and its instances would be missing for prompts.`,
    pd_no_gain: (v) =>
      `Apart, ${v('instances')} instances serve ${v('apart')} requests/s; mixed they serve ${v('mixed')} within the same limits.`,
    pd_slow_link: (v) =>
      `Moving the keys and values of a prompt takes ${v('transfer_ms')}, longer than computing them (${v('prefill_ms')}).`,
    pd_ttft: (v) => `The first token would take ${v('ttft_ms')} on average; the limit is ${v('limit_ms')}.`,
    pd_admission: () => 'A burst can fill the decode instances: they must admit by free blocks.',
  } as Record<string, (values: Values) => string>,
}
