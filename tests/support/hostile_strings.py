"""Strings that would run as script wherever a page forgets to escape, and a store that is full of them."""

import json
from dataclasses import replace

from riesz_lab.recipes import recipe
from stored import change, store_trial

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
    """Trials whose settings, logs, layers, environments and names are hostile, each string in several places."""
    texts = [f"evil{index} {attack}" for index, attack in enumerate(HOSTILE)]
    for index in range(0, len(texts), 3):
        a, b, c = texts[index : index + 3]
        for seed in range(2):
            for metric in ("identity", "sobolev-tilde"):
                config = replace(
                    recipe("demo"), recipe=f"evil-{index}", seed=seed, metric=metric, dataset=a, model=b, optimizer=c,
                    optimizer_options=(a, b, c),
                )  # fmt: skip
                path = store_trial(runs, config, layer=f"{b}.weight")
                environment = {"cpu": a, "python": b, "packages": {c: a}, "revision": b, "threads": c}
                (path / "environment.json").write_text(json.dumps([environment]))
                rows = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
                (path / "history.jsonl").write_text("".join(json.dumps({**row, c: b}) + "\n" for row in rows))
        change(path, "result.json", score=a, last={a: 0.5, "epoch": 1}, best={a: 0.5, "epoch": 1})
        odd = runs / f"evil-{index}" / "<script>window.evil=1<!script>"
        odd.mkdir()
        (odd / "config.json").write_text(json.dumps({c: b}))
    return runs
