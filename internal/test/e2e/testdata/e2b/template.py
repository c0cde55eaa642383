"""Builds templates with the package e2b of PyPI against a daemon, with its sync or async client."""

import asyncio
import pathlib
import sys
import tempfile

from e2b import AsyncSandbox, AsyncTemplate, Sandbox, Template, wait_for_file


async def wait(value):
    return await value if asyncio.iscoroutine(value) else value


async def main(mode):
    sandboxes, templates = (AsyncSandbox, AsyncTemplate) if mode == "async" else (Sandbox, Template)
    with tempfile.TemporaryDirectory() as context:
        pathlib.Path(context, "requirements.txt").write_text("none\n")
        template = (
            templates(file_context_path=context)
            .from_base_image()
            .set_workdir("/home/user/app")
            .copy("requirements.txt", "./")
            .run_cmd(["echo one > built", "cat requirements.txt"])
            .set_envs({"KIND": mode})
            .set_start_cmd("touch started; sleep 1000", wait_for_file("started"))
        )
        logs = []
        built = await wait(templates.build(template, "python-" + mode, on_build_logs=lambda entry: logs.append(entry.message)))
        assert any("[stdout]: none" in line for line in logs), logs
        print("ok build")
        sandbox = await wait(sandboxes.create("python-" + mode))
        result = await wait(sandbox.commands.run("cat requirements.txt built started; echo $KIND"))
        assert result.stdout == f"none\none\n{mode}\n", result
        await wait(sandbox.kill())
        print("ok create")
        assert await wait(templates.exists("python-" + mode))
        assert await wait(sandboxes.delete_snapshot(built.template_id))
        assert not await wait(templates.exists("python-" + mode))
        print("ok delete")


asyncio.run(main(sys.argv[1]))
