"""What is sent and when: arrival schedules, data sets, and what a prefix cache should make of them."""
