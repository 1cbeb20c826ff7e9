import locale from 'antd/locale/zh_CN'
import type { Words } from '.'
import { translator } from './sentences'
import { zh } from './zh'
import catalogue from './zh/sentences.json'

/** A chunk of its own: who reads English does not load it. */
export const chinese: Words = { texts: zh, said: translator(catalogue, zh.states), locale }
