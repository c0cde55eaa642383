// Texts of numbers and times.
import type { Amount } from './types'

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

// bytes returns a size with three digits at most: "1.5 GiB".
export function bytes(n: number): string {
  let u = 0
  while (n >= 1000 && u < units.length - 1) {
    n /= 1024
    u++
  }
  return `${n >= 100 || u === 0 || Number.isInteger(n) ? Math.round(n) : n >= 10 ? n.toFixed(0) : n.toFixed(1)} ${units[u]}`
}

export function amount(a: Amount | undefined, f: (n: number) => string): string {
  return a === undefined ? '–' : a === 'unlimited' ? 'unlimited' : f(a)
}

// duration returns a number of seconds in its largest two units: "2 h 5 min".
export function duration(s: number): string {
  s = Math.max(0, Math.round(s))
  if (s < 60) return `${s} s`
  if (s < 3600) return s % 60 && s < 600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 60)} min`
  if (s < 86400) return s % 3600 >= 60 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min` : `${Math.floor(s / 3600)} h`
  return s % 86400 >= 3600 ? `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h` : `${Math.floor(s / 86400)} d`
}

// short returns a number of seconds in its largest unit: "2 h".
export function short(s: number): string {
  s = Math.max(0, Math.round(s))
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min`
  if (s < 86400) return `${Math.floor(s / 3600)} h`
  return `${Math.floor(s / 86400)} d`
}

export const since = (iso: string, now: number): number => (now - Date.parse(iso)) / 1000

const two = (n: number): string => String(n).padStart(2, '0')

// minute returns the hour and the minute of a number of seconds since 1970, in local time.
export function minute(t: number): string {
  const d = new Date(t * 1000)
  return `${two(d.getHours())}:${two(d.getMinutes())}`
}

// clock returns the local time of day.
export function clock(iso: string): string {
  const d = new Date(iso)
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`
}

// moment returns the local date and time.
export function moment(iso: string): string {
  const d = new Date(iso)
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(iso)}`
}

export const count = (n: number): string => n.toLocaleString('en-GB').replace(/,/g, ' ')

export const percent = (n: number): string => (n >= 10 ? n.toFixed(0) : n.toFixed(1)) + ' %'

export const millis = (n: number): string => (n >= 1000 ? (n / 1000).toFixed(n >= 10000 ? 0 : 1) + ' s' : n >= 100 ? n.toFixed(0) + ' ms' : n.toFixed(1) + ' ms')

// plural returns a number with its noun.
export const plural = (n: number, one: string, many = one + 's'): string => `${count(n)} ${n === 1 ? one : many}`

// parseSize returns the bytes of a text such as "512 MiB" or "1.5G", or undefined.
export function parseSize(text: string): number | undefined {
  const m = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b?)\s*$/i.exec(text)
  if (!m) return undefined
  return Math.round(Number(m[1]) * 1024 ** ' kmgt'.indexOf((m[2] || ' ').toLowerCase()))
}

// parseDuration returns the seconds of a text such as "90", "15 min" or "2h", or undefined.
export function parseDuration(text: string): number | undefined {
  const m = /^\s*(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)?\s*$/i.exec(text)
  if (!m) return undefined
  const unit = (m[2] ?? 's').toLowerCase()[0]
  return Number(m[1]) * ({ s: 1, m: 60, h: 3600, d: 86400 } as Record<string, number>)[unit ?? 's']!
}

// shortID returns the beginning of an id.
export const shortID = (id: string): string => (id.length > 15 ? id.slice(0, 13) + '…' : id)
