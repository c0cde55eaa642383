import './style.css'
import { render } from 'preact'
import { App } from './pages/app'
import { showTheme } from './lib/session'

showTheme()
render(<App />, document.getElementById('app')!)
