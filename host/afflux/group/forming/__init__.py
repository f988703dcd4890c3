"""How a group forms: the ranks meet, agree on a plan, and each makes its reducer."""
