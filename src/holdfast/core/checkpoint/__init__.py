"""What a checkpoint of an HA unit is made of, and where its parts are stored. [SGuard §3, §4.4]"""
