import { Component, h, type ComponentType } from 'preact'

// memo renders a component again only if same reports that its properties differ.
export function memo<P extends object>(C: ComponentType<P>, same: (a: P, b: P) => boolean): ComponentType<P> {
  return class extends Component<P> {
    override shouldComponentUpdate(next: P) {
      return !same(this.props as P, next)
    }
    render(props: P) {
      return h(C, props)
    }
  } as unknown as ComponentType<P>
}
