"""Builds templates with the package e2b of PyPI against a daemon, with its sync or async client."""

import asyncio
import json
import pathlib
import sys
import tempfile

import surface  # records the calls
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
    await tags(sandboxes, templates)
    print("ok tags")
    with tempfile.TemporaryDirectory() as context:
        pathlib.Path(context, "a").touch()
        builder(templates, context)
    print("ok builder")


async def tags(sandboxes, templates):
    for v in ("v1", "v2"):
        job = await wait(templates.build_in_background(templates().from_base_image().run_cmd(f"echo {v} > made"), "tagged:" + v))
        while (status := await wait(templates.get_build_status(job))).status.value in ("waiting", "building"):
            await asyncio.sleep(0.05)
        assert status.status.value == "ready", status
    given = await wait(templates.assign_tags("tagged:v1", ["production", "default"]))
    assert given.tags == ["production", "default"], given
    sandbox = await wait(sandboxes.create("tagged:production"))
    assert await wait(sandbox.files.read("made")) == "v1\n"
    await wait(sandbox.kill())
    assert sorted(t.tag for t in await wait(templates.get_tags(job.template_id))) == ["default", "production", "v1", "v2"]
    await wait(templates.remove_tags("tagged", "production"))
    assert not await wait(templates.alias_exists("tagged:production"))
    assert await wait(sandboxes.delete_snapshot(job.template_id))


def builder(templates, context):
    """Checks what each method makes of a template; the instructions themselves are those of build."""
    for name in ("debian", "ubuntu", "fedora", "alpine", "arch", "python", "node", "bun"):
        base = {"debian": templates().from_debian_image, "ubuntu": templates().from_ubuntu_image, "fedora": templates().from_fedora_image,
                "alpine": templates().from_alpine_image, "arch": templates().from_arch_image, "python": templates().from_python_image,
                "node": templates().from_node_image, "bun": templates().from_bun_image}[name]
        assert templates.to_dockerfile(base()).startswith("FROM "), name
    made = (templates(file_context_path=context).skip_cache().from_image("base").copy_items([{"src": "a", "dest": "."}]).copy("a", "b").set_user("root").make_dir("d")
            .make_symlink("d", "e").rename("d", "f").remove("f").pip_install("six").npm_install("x").bun_install("x").apt_install("jq")
            .git_clone("https://git.example/a.git").skip_cache().set_ready_cmd("true"))
    steps = [s["type"] for s in json.loads(templates.to_json(made))["steps"]]
    assert steps == ["COPY", "COPY", "USER"] + ["RUN"] * 9, steps
    assert json.loads(templates.to_json(templates().from_template("base").set_workdir("/w")))["fromTemplate"] == "base"
    assert json.loads(templates.to_json(templates().from_dockerfile("FROM base")))["fromImage"] == "base"


asyncio.run(main(sys.argv[1]))
surface.end()
