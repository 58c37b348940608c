import './index.css';
import './live.css';
