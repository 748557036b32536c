"""Who is asking: users, organizations, memberships, groups, keys, and the policy that answers."""
