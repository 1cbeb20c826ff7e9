// Language and theme: kept in the browser for the sign-in page, and with the person on the server.

import { useSyncExternalStore } from 'react'

export type Language = 'en' | 'zh'
export type Theme = 'system' | 'light' | 'dark'
export interface Preferences {
  language: Language
  theme: Theme
}

const STORAGE = 'tursiops.preferences'
const THEMES: readonly string[] = ['system', 'light', 'dark']
const darkScheme = window.matchMedia('(prefers-color-scheme: dark)')

export function languageOf(tag: string): Language {
  return tag.toLowerCase().startsWith('zh') ? 'zh' : 'en'
}

function stored(): Preferences {
  const fallback: Preferences = { language: languageOf(navigator.language), theme: 'system' }
  try {
    const saved = JSON.parse(localStorage.getItem(STORAGE) ?? '{}') as Partial<Preferences>
    return {
      language: saved.language ? languageOf(saved.language) : fallback.language,
      theme: saved.theme && THEMES.includes(saved.theme) ? saved.theme : fallback.theme,
    }
  } catch {
    return fallback // blocked storage or foreign text in it: the browser's own wishes
  }
}

class PreferenceStore {
  private value = stored()
  private listeners = new Set<() => void>()

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    darkScheme.addEventListener('change', listener)
    return () => {
      this.listeners.delete(listener)
      darkScheme.removeEventListener('change', listener)
    }
  }

  current = (): Preferences => this.value

  dark = (): boolean => this.value.theme === 'dark' || (this.value.theme === 'system' && darkScheme.matches)

  constructor() {
    darkScheme.addEventListener('change', () => this.showTheme())
  }

  /** On the root, so that drawers and dialogs, which hang outside the page, have it too. */
  private showTheme(): void {
    document.documentElement.dataset.theme = this.dark() ? 'dark' : 'light'
  }

  set(change: Partial<Preferences>): void {
    this.value = { ...this.value, ...change }
    this.showTheme()
    document.documentElement.lang = this.value.language === 'zh' ? 'zh-CN' : 'en'
    try {
      localStorage.setItem(STORAGE, JSON.stringify(this.value))
    } catch {
      // Blocked storage: the choice lasts for this visit, and with the person on the server.
    }
    for (const listener of this.listeners) listener()
  }

  /** What the server knows of the person wins over what this browser kept. */
  adopt(user: { language: string; theme?: Theme }): void {
    this.set({
      ...(user.theme ? { theme: user.theme } : {}),
      ...(user.language ? { language: languageOf(user.language) } : {}),
    })
  }
}

export const preferences = new PreferenceStore()
preferences.set({})

export function usePreferences(): Preferences {
  return useSyncExternalStore(preferences.subscribe, preferences.current)
}

export function useDark(): boolean {
  return useSyncExternalStore(preferences.subscribe, preferences.dark)
}
