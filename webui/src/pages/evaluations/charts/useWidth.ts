import { type RefObject, useLayoutEffect, useRef, useState } from 'react'

/** Width in px of the element that takes the ref: a chart drawn at its own size keeps its letters readable. */
export function useWidth<E extends Element>(before = 720): [RefObject<E | null>, number] {
  const element = useRef<E>(null)
  const [width, setWidth] = useState(before)
  useLayoutEffect(() => {
    if (!element.current) return
    const observer = new ResizeObserver(([entry]) => {
      if (entry && entry.contentRect.width > 0) setWidth(Math.round(entry.contentRect.width))
    })
    observer.observe(element.current)
    return () => observer.disconnect()
  }, [])
  return [element, width]
}
