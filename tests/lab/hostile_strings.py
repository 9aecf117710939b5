"""Strings that would run as script wherever a page forgets to escape, and a store that is full of them."""

import json
from dataclasses import replace

from stored import change, store_trial

from riesz_lab.recipes import recipe

RUN = "window.evil=1"
HOSTILE = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"\"><img src=x onerror='{RUN}'>",
    f"'><svg onload={RUN}>",
    f'" onmouseover="{RUN}" x="',
    f"' autofocus onfocus='{RUN}",
    f"javascript:{RUN}",
    f"<a href='javascript:{RUN}'>x</a>",
    f'<a href="data:text/html,<script>{RUN}</script>">x</a>',
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    "{{ self.__init__.__globals__ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}",
    f"${{{RUN}}}",
    f"<!--<script>{RUN}//-->",
    f"<math><mtext><style><img src=x onerror={RUN}></style>",
    f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e",
    f"%{{customdata[0]}}<br><b onclick={RUN}>x</b>",
    f"\u2028{RUN}\u2029",
    f"<base href=//evil.invalid/><link rel=stylesheet href=//evil.invalid/x.css><b>{RUN}",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    f"</noscript><p/onclick={RUN}>",
]


def infected_store(runs):
    """Trials whose settings, logs, layers, environments and reasons are hostile, each string in every place."""
    for index, attack in enumerate(HOSTILE):
        text = f"evil{index} {attack}"
        for seed in range(2):
            for metric in ("identity", "sobolev-tilde"):
                config = replace(
                    recipe("demo"), recipe=f"evil{index}", seed=seed, metric=metric, dataset=text, model=text,
                    optimizer=text, optimizer_options=(text,),
                )  # fmt: skip
                path = store_trial(runs, config, layer=f"{text}.weight")
                environment = {"cpu": text, "python": text, "packages": {text: text}, "revision": text, "threads": text}
                (path / "environment.json").write_text(json.dumps([environment]))
                rows = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
                (path / "history.jsonl").write_text("".join(json.dumps({**row, text: text}) + "\n" for row in rows))
        change(path, "result.json", score=text, last={text: 0.5, "epoch": 1}, best={text: 0.5, "epoch": 1})
        (runs / f"evil{index}" / "<script>window.evil=1<!script>").mkdir()
        (runs / f"evil{index}" / "<script>window.evil=1<!script>" / "config.json").write_text(json.dumps({text: text}))
    return runs
