require('fs').writeFileSync('m.mjs', 'import { x } from "./n.mjs"; export default x + 1; export const url = import.meta.url; console.log("m");');
require('fs').writeFileSync('n.mjs', 'export const x = 1; console.log("n", typeof require);');
import('./m.mjs').then((m) => console.log(m, m.default)).then(() => import('node:os')).then((os) => console.log(typeof os.cpus));
