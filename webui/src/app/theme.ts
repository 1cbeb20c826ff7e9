import type { ThemeConfig } from 'antd'
import { theme } from 'antd'

const FONT =
  "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', 'WenQuanYi Zen Hei', sans-serif"
const MONOSPACE = "ui-monospace, SFMono-Regular, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

/** Deep water by day, the same hue lifted by night. Everything else follows from Ant Design's algorithms. */
export function themeConfig(dark: boolean): ThemeConfig {
  return {
    algorithm: dark ? theme.darkAlgorithm : theme.defaultAlgorithm,
    token: {
      colorPrimary: dark ? '#22a3c0' : '#0e7490',
      colorLink: dark ? '#4fc3dd' : '#0e7490',
      colorBgLayout: dark ? '#0b1216' : '#f4f7f8',
      colorBgContainer: dark ? '#121b20' : '#ffffff',
      colorBgElevated: dark ? '#18232a' : '#ffffff',
      // Words of a state must be readable on the tint behind them (WCAG AA).
      ...(dark
        ? {}
        : {
            colorSuccess: '#237804',
            colorWarning: '#ad6800',
            colorError: '#cf1322',
            colorPrimaryBg: '#e0f2f6',
          }),
      borderRadius: 8,
      fontFamily: FONT,
      fontFamilyCode: MONOSPACE,
    },
    components: {
      Layout: { siderBg: dark ? '#121b20' : '#ffffff', headerBg: dark ? '#121b20' : '#ffffff' },
      Menu: dark ? {} : { itemSelectedBg: '#e0f2f6' },
      Segmented: { trackBg: dark ? '#1d2a32' : '#e3eaed', ...(dark ? { itemSelectedBg: '#34464f' } : {}) },
      Table: { cellPaddingBlock: 10 },
    },
  }
}
