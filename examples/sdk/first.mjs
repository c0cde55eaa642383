import { Sandbox } from "sandbar";
const box = await Sandbox.local();
await box.files.write("sales.csv", "month,sales\n1,10\n2,14\n");
const chart = await box.runCode("import pandas as pd; t = pd.read_csv('sales.csv'); t.plot(x='month')");
console.log(chart.png.length, (await box.runCode("t.sales.sum().item()")).text);
await box.commands.start("python3 -m http.server 8000");
console.log((await box.expose(8000)).url);
await box.stop();
