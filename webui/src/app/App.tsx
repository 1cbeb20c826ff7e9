import { QueryClientProvider } from '@tanstack/react-query'
import { App as AntApp, ConfigProvider } from 'antd'
import enUS from 'antd/locale/en_US'
import zhCN from 'antd/locale/zh_CN'
import { RouterProvider } from 'react-router'
import { queryClient } from '@/api/queryClient'
import { useDark, usePreferences } from './preferences'
import { router } from './routes'
import { themeConfig } from './theme'

export function App() {
  const { language } = usePreferences()
  const dark = useDark()
  const still = window.matchMedia('(prefers-reduced-motion: reduce)').matches
  return (
    <ConfigProvider
      theme={themeConfig(dark, still)}
      locale={language === 'zh' ? zhCN : enUS}
      tooltip={{ trigger: ['hover', 'focus'] }} // the keyboard learns what the mouse learns
      button={{ autoInsertSpace: false }}
    >
      <AntApp className="app" message={{ maxCount: 3 }}>
        <QueryClientProvider client={queryClient}>
          <RouterProvider router={router} />
        </QueryClientProvider>
      </AntApp>
    </ConfigProvider>
  )
}
