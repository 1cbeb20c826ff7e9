import { describe, expect, it } from 'vitest'
import { translator } from './sentences'
import { zh } from './zh'
import catalogue from './zh/sentences.json'

const said = translator(catalogue, zh.states)

describe('sentences of the platform in Chinese', () => {
  it.each([
    ['It looks for a node.', '正在寻找节点。'],
    ['Loading the model.', '正在加载模型。'],
    [
      'Placed on vm: 412 MiB of 19.78 GiB free, the files are there.',
      '放置在 vm：需要 412 MiB，空闲 19.78 GiB，文件已在该节点。',
    ],
    [
      '0 of 1 unified ready. unified 0: No node can take it. vm: Memory: 19.78 GiB free of 23.54 GiB, needs 84.44 GiB. 84.44 GiB are needed and 19.78 GiB are free: 64.66 GiB too little.',
      'unified 就绪 0 / 1。unified 0：没有节点放得下。vm：内存：空闲 19.78 GiB，共 23.54 GiB，需要 84.44 GiB。需要 84.44 GiB，空闲 19.78 GiB：还差 64.66 GiB。',
    ],
    [
      'The engine was ended by SIGKILL (out of memory?). Start 2 of 6 follows in 1 s.',
      '引擎被 SIGKILL 终止（内存不足？）。1 秒后进行第 2 次启动，最多 6 次。',
    ],
    [
      'smollm2 unified 0 drains: A restart was asked for; its requests end first.',
      'smollm2 unified 0 正在排空：已要求重启，先完成进行中的请求。',
    ],
    [
      'It is cordoned: An admin closed it for new instances; those on it go on.',
      '节点已封锁：管理员已封锁它：不放置新实例，已有的继续运行。',
    ],
    ['The engine ended with exit code 1.', '引擎以退出码 1 结束。'],
    [
      "the prompt has 15100 tokens and the model's context length is 8192 tokens; shorten messages to at most 8191 tokens",
      '提示有 15100 个词元，超出模型的上下文长度 8192 个词元；请缩短到 8191 个词元以内。',
    ],
    [
      'Gate fast: e2el.p95 is 812 ms in the run of nightly on demo; at most 500 ms is asked.',
      '门禁 fast：在 nightly on demo 的运行中 e2el.p95 为 812 ms；要求至多 500 ms。',
    ],
    [
      'The gate fast rests on nightly: only an admin of the team changes what it measures.',
      '门禁 fast 以 nightly 为依据：只有团队管理员可以更改它的测量内容。',
    ],
    ["name: 'A b' can't be a served name.", 'name：A b 不能用作服务名称。'],
  ])('%s', (english, chinese) => {
    expect(said(english)).toBe(chinese)
  })

  it('shows what it does not know as it came, and the rest around it', () => {
    expect(said('A sentence of a plugin.')).toBe('A sentence of a plugin.')
    expect(said('Some words of an engine. Start 3 of 6 follows in 2 s.')).toBe(
      'Some words of an engine. 2 秒后进行第 3 次启动，最多 6 次。',
    )
  })

  it('fills every place that a translation names', () => {
    for (const [english, translated] of Object.entries(catalogue)) {
      const places = new Set([...english.matchAll(/\{[#~>*]?(\w+)\}/g)].map((match) => match[1]))
      for (const [, name] of translated.matchAll(/\{(\w+)\}/g)) expect(places, english).toContain(name)
    }
  })
})
