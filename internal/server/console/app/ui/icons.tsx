// Icons of 16 by 16 units, drawn with lines.
const paths = {
  boxes: 'M2.5 5 8 2l5.5 3v6L8 14l-5.5-3zM2.5 5 8 8l5.5-3M8 8v6',
  status: 'M1.5 8.5h3l2-5 3 9 2-4h3',
  events: 'M3 4h10M3 8h10M3 12h6',
  doctor: 'M8 3v10M3 8h10',
  config: 'M2 5h7M12 5h2M2 11h2M7 11h7M9 3v4M4.5 9v4',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3 3',
  plus: 'M8 3v10M3 8h10',
  close: 'M4 4l8 8M12 4l-8 8',
  check: 'M3 8.5 6.5 12 13 4.5',
  copy: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  play: 'M5 3.2v9.6L12.5 8z',
  stop: 'M4 4h8v8H4z',
  fork: 'M4.5 5v6M4.5 8.5c5 0 7-.5 7-3.5M4.5 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM4.5 14a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3zM11.5 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z',
  clock: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.5V8l2.5 1.5',
  trash: 'M2.5 4.5h11M6 4.5v-2h4v2M4 4.5l.7 9h6.6l.7-9',
  file: 'M4 2h5l3 3v9H4zM9 2v3h3',
  folder: 'M1.5 3.5h4.5l1.5 2h7v7.5h-13z',
  link: 'M9.5 2.5h4v4M13.5 2.5l-6 6M11.5 9v4.5h-9v-9H7',
  upload: 'M8 11V3M4.5 6 8 2.5 11.5 6M2.5 10.5v3h11v-3',
  download: 'M8 2.5v8M4.5 7.5 8 11l3.5-3.5M2.5 10.5v3h11v-3',
  refresh: 'M13 5.5A5.5 5.5 0 1 0 13.5 9M13.5 2.5v3.2h-3.2',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1',
  moon: 'M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z',
  auto: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M10 3v10M12 5v6',
  keys: 'M1.5 4h13v8h-13zM4 6.5h.5M7 6.5h.5M10 6.5h.5M4.5 9.5h7',
  exit: 'M6.5 2.5h-4v11h4M7 8h7M11 5l3 3-3 3',
  more: 'M3.5 8h.1M8 8h.1M12.5 8h.1',
  chevron: 'M6 4l4 4-4 4',
  back: 'M10 3.5 5.5 8l4.5 4.5',
  warn: 'M8 2 1.5 13.5h13zM8 6.5v3.5M8 11.8v.2',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.5V11M8 5v.2',
  key: 'M10.5 8.5a3 3 0 1 0-3-3c0 .5.1 1 .3 1.3L2.5 12v1.5H5V12h1.5v-1.5l1.8-2.3c.6.2 1.4.3 2.2.3z',
} as const

export type IconName = keyof typeof paths

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  )
}

// Logo is the mark of the console.
export function Logo({ size = 22 }: { size?: number }) {
  return (
    <svg class="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" />
      <path d="M6 12c3.3-3 6.7-3 10 0s6.7 3 10 0M6 20h20M10 25h12" />
    </svg>
  )
}
