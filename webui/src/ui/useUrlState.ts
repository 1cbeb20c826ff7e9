import { useSearchParams } from 'react-router'

/** Filters and tabs live in the address, so that any view can be shared. The default leaves no trace. */
export function useUrlState(name: string, fallback = ''): [string, (value: string) => void] {
  const [params, setParams] = useSearchParams()
  const set = (value: string) =>
    setParams(
      (previous) => {
        const next = new URLSearchParams(previous)
        if (value === fallback || value === '') next.delete(name)
        else next.set(name, value)
        return next
      },
      { replace: true },
    )
  return [params.get(name) ?? fallback, set]
}
