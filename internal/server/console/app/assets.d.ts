// Files that the bundler handles: styles go into the page's style sheet, and the names of other
// files become their addresses.
declare module '*.frame.css' {
  const address: string
  export default address
}
declare module '*.css'
