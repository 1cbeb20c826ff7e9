import { expect, test } from 'vitest'
import { linesOfFile, termsOf } from './terms'

test('a term is what stands on a line, without the blanks around it', () => {
  expect(termsOf('quantitative easing\r\n\n  REIT \n市盈率')).toEqual([
    'quantitative easing',
    'REIT',
    '市盈率',
  ])
})

test('of a CSV file the first column is taken, quotes and mark off', () => {
  const csv = '\uFEFFREIT,real estate\n"swap, credit default",x\n"a ""b""";y\nEBITDA'
  expect(termsOf(linesOfFile('terms.CSV', csv))).toEqual(['REIT', 'swap, credit default', 'a "b"', 'EBITDA'])
})

test('another file is taken as it is', () => {
  expect(linesOfFile('terms.txt', 'S&P 500, index')).toBe('S&P 500, index')
})
