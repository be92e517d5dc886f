// The start of the page.
import { render } from 'preact';
import { App } from './app';
import './theme';
import './styles/base.css';
import './styles/shell.css';
import './styles/parts.css';
import './styles/views.css';
import './styles/placement.css';
import './styles/simulation.css';

const root = document.getElementById('console');
if (root !== null) render(<App />, root);
