/* Lint rules of the pages' scripts; their types are tsc's matter. */

import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2023, sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "prefer-const": "error",
      "no-var": "error",
      "no-shadow": "error",
      "no-implicit-globals": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-param-reassign": "error",
      "no-promise-executor-return": "off",
      "max-lines": ["error", 300],
      complexity: ["error", 14],
    },
  },
];
