import './style.css'
import { render } from 'preact'
render(<p>ok</p>, document.getElementById('app')!)
