"""The parts of the experiment `follow`: plants with noise, consistency of the filters, tracking, and dynamax."""
