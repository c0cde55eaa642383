// The part of a plot that needs uPlot.
import uPlot from 'uplot'
import { clock, minute } from '../lib/format'
import type { PlotProps } from './plot'

// color returns a colour of the style sheet for this scheme.
function color(name: string): string {
  const probe = document.createElement('span')
  probe.style.color = `var(${name})`
  document.body.append(probe)
  const c = getComputedStyle(probe).color
  probe.remove()
  return c
}

export function plot(box: HTMLElement, first: PlotProps): { draw: (p: PlotProps) => void; end: () => void } {
  let p = first
  const height = first.height ?? 120
  const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { show: false }, font: '11px ' + getComputedStyle(document.body).fontFamily }
  const u = new uPlot(
    {
      width: Math.max(80, box.clientWidth),
      height,
      padding: [6, 14, 0, 0],
      legend: { show: false },
      cursor: { points: { size: 6 }, y: false, drag: { x: false, y: false } },
      scales: {
        x: {
          time: true,
          range: () => {
            const now = p.times.at(-1) ?? Date.now() / 1000
            return [now - (p.span ?? 300), now]
          },
        },
        y: { range: (_u, _min, max) => [0, Math.max((max ?? 0) * 1.1, p.top ?? 0) || 1] },
      },
      axes: [
        { ...axis, size: 22, space: 46, incrs: [60, 120, 300, 600, 1800, 3600], values: (_u, all) => all.map(minute) },
        { ...axis, size: 56, space: 34, values: (_u, all) => all.map((v) => p.text(v)) },
      ],
      series: [{}, ...first.series.map((s) => ({ label: s.name, stroke: color('--plot-' + s.color), width: 1.5, fill: first.series.length === 1 && s.color === 1 ? color('--plot-fill') : undefined, points: { show: false } }))] as uPlot.Series[],
      hooks: {
        setCursor: [
          (u) => {
            const i = u.cursor.idx
            tip.hidden = i == null || (u.cursor.left ?? -1) < 0
            if (i == null) return
            const t = p.times[i]
            tip.textContent = (t ? clock(new Date(t * 1000).toISOString()) : '') + '  ' + p.series.map((s) => (p.series.length > 1 ? s.name + ' ' : '') + (s.values[i] == null ? '–' : p.text(s.values[i]!))).join('  ')
          },
        ],
      },
    },
    [[], ...first.series.map(() => [])] as unknown as uPlot.AlignedData,
    box,
  )
  const tip = document.createElement('div')
  tip.className = 'tip'
  tip.hidden = true
  box.append(tip)
  const size = new ResizeObserver(() => u.setSize({ width: Math.max(80, box.clientWidth), height }))
  size.observe(box)
  const draw = (next: PlotProps) => {
    p = next
    u.setData([p.times, ...p.series.map((s) => s.values)] as uPlot.AlignedData)
  }
  draw(first)
  return {
    draw,
    end: () => {
      size.disconnect()
      u.destroy()
      tip.remove()
    },
  }
}
