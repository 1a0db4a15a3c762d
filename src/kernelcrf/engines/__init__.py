"""Where work runs: an ordered map. Engines know no mathematics."""
