"""Where records are kept. Import a store from the module named after what it runs on."""
