import { theme } from 'antd'
import { describe, expect, it } from 'vitest'
import { themeConfig } from './theme'

type Rgb = [number, number, number]

/** "#rrggbb" or "rgba(r, g, b, a)" as it looks on `behind`. */
function seen(color: string, behind: Rgb): Rgb {
  const hex = /^#([\da-f]{2})([\da-f]{2})([\da-f]{2})$/i.exec(color)
  if (hex) return [1, 2, 3].map((part) => Number.parseInt(hex[part] ?? '', 16)) as Rgb
  const [r = 0, g = 0, b = 0, a = 1] = (color.match(/[\d.]+/g) ?? []).map(Number)
  return [r, g, b].map((part, at) => part * a + (behind[at] ?? 0) * (1 - a)) as Rgb
}

function luminance(rgb: Rgb): number {
  const [r = 0, g = 0, b = 0] = rgb.map((part) => {
    const share = part / 255
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

/** WCAG 2: from 1 to 21. */
function contrast(front: string, back: string, page: string): number {
  const behind = seen(back, seen(page, [255, 255, 255]))
  const [dark = 0, light = 0] = [luminance(seen(front, behind)), luminance(behind)].sort((a, b) => a - b)
  return (light + 0.05) / (dark + 0.05)
}

describe.each([
  ['light', false],
  ['dark', true],
])('%s', (_name, dark) => {
  const token = theme.getDesignToken(themeConfig(dark))
  const page = token.colorBgContainer

  it.each([
    ['success', token.colorSuccess, token.colorSuccessBg],
    ['processing', token.colorInfo, token.colorInfoBg],
    ['warning', token.colorWarning, token.colorWarningBg],
    ['error', token.colorError, token.colorErrorBg],
    ['secondary text', token.colorTextSecondary, token.colorBgLayout],
    ['tertiary text', token.colorTextTertiary, token.colorBgLayout],
    ['link', token.colorLink, token.colorBgContainer],
  ])('%s can be read', (_what, front, back) => {
    expect(contrast(front, back, page)).toBeGreaterThanOrEqual(4.5)
  })
})
