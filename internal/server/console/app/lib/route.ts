// The page's address is "/#/PATH?QUERY", because the daemon serves the page at "/" only.
import { store } from './store'

export interface Route {
  parts: string[]
  query: URLSearchParams
}

function read(): Route {
  const [path = '', q = ''] = location.hash.replace(/^#/, '').split('?', 2)
  return { parts: path.split('/').filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(q) }
}

export const route = store<Route>(read())

addEventListener('hashchange', () => route.set(read()))

// go changes the address.
export function go(path: string, replace = false): void {
  if (replace) {
    history.replaceState(null, '', '#' + path)
    route.set(read())
  } else {
    location.hash = path
  }
}

// href returns the address of a page.
export const href = (...parts: string[]): string => '#/' + parts.map(encodeURIComponent).join('/')
