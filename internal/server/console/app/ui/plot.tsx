// Plot shows values over time. Its library is loaded when the first plot appears.
import { useEffect, useRef, useState } from 'preact/hooks'
import { theme } from '../lib/session'
import { useStore } from '../lib/store'
import { useNow } from './parts'

export interface Series {
  name: string
  color: 1 | 2 | 3 | 4
  values: (number | null)[]
}

export interface PlotProps {
  title: string
  times: number[] // seconds since 1970
  series: Series[]
  text: (v: number) => string
  top?: number // at least the top of the scale
  span?: number // seconds to show
  height?: number
}

export function Plot(p: PlotProps) {
  const box = useRef<HTMLDivElement>(null)
  const [draw, setDraw] = useState<((p: PlotProps) => void) | null>(null)
  const scheme = useStore(theme)
  useNow(60_000)
  useEffect(() => {
    let end = () => {}
    let gone = false
    void import('./uplot').then((m) => {
      if (gone || !box.current) return
      const plot = m.plot(box.current, p)
      end = plot.end
      setDraw(() => plot.draw)
    })
    return () => {
      gone = true
      end()
    }
  }, [scheme, p.series.length])
  useEffect(() => draw?.(p))
  const latest = p.series.map((s) => s.values.findLast((v) => v !== null) ?? null)
  return (
    <figure class="plot">
      <figcaption>
        <span class="title">{p.title}</span>
        <span class="legend">
          {p.series.map((s, i) => (
            <span key={s.name} class={'series c' + s.color}>
              {p.series.length > 1 && <span class="name">{s.name} </span>}
              <span class="number">{latest[i] === null || latest[i] === undefined ? '–' : p.text(latest[i]!)}</span>
            </span>
          ))}
        </span>
      </figcaption>
      <div class="canvas" ref={box} role="img" aria-label={`${p.title} over time. Now: ${p.series.map((s, i) => `${s.name} ${latest[i] == null ? 'unknown' : p.text(latest[i]!)}`).join(', ')}.`} />
    </figure>
  )
}
