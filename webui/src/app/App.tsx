import { QueryClientProvider } from '@tanstack/react-query'
import { App as AntApp, ConfigProvider } from 'antd'
import { Suspense } from 'react'
import { RouterProvider } from 'react-router'
import { queryClient } from '@/api/queryClient'
import { useWords } from '@/i18n'
import { useDark } from './preferences'
import { router } from './routes'
import { themeConfig } from './theme'

export function App() {
  return (
    <Suspense>
      <Themed />
    </Suspense>
  )
}

function Themed() {
  const { locale } = useWords()
  const dark = useDark()
  const still = window.matchMedia('(prefers-reduced-motion: reduce)').matches
  return (
    <ConfigProvider
      theme={themeConfig(dark, still)}
      locale={locale}
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
