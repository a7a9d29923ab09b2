"""LiteLLM is imported by the tests beside this file, and reads its settings when it is."""

import os

# Without these it fetches its price lists while it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
