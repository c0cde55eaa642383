// A store is a value that components follow.
import { useEffect, useState } from 'preact/hooks'

export interface Store<T> {
  get(): T
  set(v: T): void
  update(f: (v: T) => T): void
  follow(f: () => void): () => void
}

// store returns a store with a first value.
export function store<T>(first: T): Store<T> {
  let value = first
  const followers = new Set<() => void>()
  const set = (v: T) => {
    if (Object.is(v, value)) return
    value = v
    for (const f of [...followers]) f()
  }
  return {
    get: () => value,
    set,
    update: (f) => set(f(value)),
    follow(f) {
      followers.add(f)
      return () => {
        followers.delete(f)
      }
    },
  }
}

// useStore returns the value of a store and renders the component again when it changes.
export function useStore<T>(s: Store<T>): T {
  return useSyncExternalStore(s.follow, s.get)
}

// useSyncExternalStore renders the component again when a value outside of it changes.
export function useSyncExternalStore<T>(follow: (f: () => void) => () => void, get: () => T): T {
  const [, again] = useState(0)
  const value = get()
  useEffect(() => {
    let last = value
    const check = () => {
      const now = get()
      if (!Object.is(now, last)) {
        last = now
        again((n) => n + 1)
      }
    }
    check() // it may have changed before this effect
    return follow(check)
  }, [follow, get])
  return value
}
