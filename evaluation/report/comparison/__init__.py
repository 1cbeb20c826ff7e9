"""Two or more runs against each other: may they be compared, what differs, by how much, and is it more than chance."""
