"""What is put in channels: methods with named fields, launch descriptors, queues of them."""
