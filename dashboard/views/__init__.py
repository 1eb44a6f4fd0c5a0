"""Parts of pages that rerun on their own."""
