import './index.css';
import './live.css';
import './marks.css';
