import type { ThemeConfig } from 'antd'
import { theme } from 'antd'

const FONT =
  "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', 'WenQuanYi Zen Hei', sans-serif"
const MONOSPACE = "ui-monospace, SFMono-Regular, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

// Words of a state must be readable on the tint behind them, and hints on the page (WCAG AA: 4.5 to 1).
const LIGHT = {
  colorInfo: '#0958d9',
  colorSuccess: '#237804',
  colorSuccessBg: '#eaf6e5',
  colorWarning: '#8f5600',
  colorWarningBg: '#fff6df',
  colorError: '#cf1322',
  colorErrorBg: '#fff1f0',
  colorPrimaryBg: '#e0f2f6',
  colorTextTertiary: 'rgba(0, 0, 0, 0.6)',
  colorTextPlaceholder: 'rgba(0, 0, 0, 0.6)',
}
const DARK = {
  colorInfo: '#5aa7ff',
  colorSuccess: '#5fc23a',
  colorError: '#ff8f8f',
  colorTextTertiary: 'rgba(255, 255, 255, 0.6)',
  colorTextPlaceholder: 'rgba(255, 255, 255, 0.6)',
}

/** Deep water by day, the same hue lifted by night. Everything else follows from Ant Design's algorithms. */
export function themeConfig(dark: boolean, still = false): ThemeConfig {
  return {
    algorithm: dark ? theme.darkAlgorithm : theme.defaultAlgorithm,
    token: {
      colorPrimary: dark ? '#22a3c0' : '#0e7490',
      colorLink: dark ? '#4fc3dd' : '#0e7490',
      colorBgLayout: dark ? '#0b1216' : '#f4f7f8',
      colorBgContainer: dark ? '#121b20' : '#ffffff',
      colorBgElevated: dark ? '#18232a' : '#ffffff',
      ...(dark ? DARK : LIGHT),
      borderRadius: 8,
      motion: !still,
      fontFamily: FONT,
      fontFamilyCode: MONOSPACE,
    },
    components: {
      Layout: { siderBg: dark ? '#121b20' : '#ffffff', headerBg: dark ? '#121b20' : '#ffffff' },
      Menu: dark ? { itemSelectedColor: '#8ad8ea' } : { itemSelectedBg: '#e0f2f6' },
      Button: dark ? { primaryColor: '#04161b', dangerColor: '#1c0505' } : {},
      Segmented: { trackBg: dark ? '#1d2a32' : '#e3eaed', ...(dark ? { itemSelectedBg: '#34464f' } : {}) },
      Table: { cellPaddingBlock: 10, cellPaddingInline: 14 },
    },
  }
}
