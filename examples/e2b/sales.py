from base64 import b64decode
from pathlib import Path
from e2b_code_interpreter import Sandbox

with Sandbox.create(timeout=600) as sandbox:
    sandbox.files.write("sales.csv", Path("sales.csv").read_text())
    sandbox.run_code("import pandas; table = pandas.read_csv('sales.csv')")
    plot = sandbox.run_code("table.plot.bar(x='month', y='sales');")
    Path("sales.png").write_bytes(b64decode(plot.results[0].png))
    print("total:", sandbox.run_code("table.sales.sum().item()").text)  # the session has the table
    sandbox.run_code("open('index.html', 'w').write(table.to_html())")
    sandbox.commands.run("python3 -m http.server 8000", background=True, timeout=0)
    input(f"open http://{sandbox.get_host(8000)}/ and press Enter to end ")
    sandbox.kill()
