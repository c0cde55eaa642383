from sandbar import Sandbox
with Sandbox.local() as box:
    box.files.write("sales.csv", "month,sales\n1,10\n2,14\n")
    chart = box.run_code("import pandas as pd; t = pd.read_csv('sales.csv'); t.plot(x='month')")
    open("chart.png", "wb").write(chart.png)
    print(box.run_code("t.sales.sum().item()").text)
    box.commands.start("python3 -m http.server 8000")
    print(box.expose(8000).url)
